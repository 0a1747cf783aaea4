"""Is training going on, what is at risk, what waits for me?"""

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from reliability.selectors import pages
from reliability.views.page import reads, render_page


@reads("job", "node", "incident", "failover", "snapshot", "drill")
@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    """Show the state of everything on one page."""
    return render_page(request, "overview.html", {"overview": pages.overview(now=timezone.now())})
