"""Pages of REST lists."""

from rest_framework.pagination import PageNumberPagination


class Pages(PageNumberPagination):
    """100 rows a page, up to 1000 by ?page_size=."""

    page_size_query_param = "page_size"
    max_page_size = 1000
