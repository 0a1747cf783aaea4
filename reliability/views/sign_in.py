"""Signing in: a page of its own, a limited number of tries, and the same page for the administration."""

from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.decorators import method_decorator

from reliability.services import sign_ins


@method_decorator(login_not_required, name="dispatch")
class SignIn(LoginView):
    """Django's sign-in with a limit of tries."""

    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Look at the password, unless too many were tried."""
        if sign_ins.begin(**self._who()):
            return super().post(request, *args, **kwargs)
        answer = self.render_to_response(self.get_context_data(form=AuthenticationForm(request), too_many=True))
        answer.status_code = 429
        answer.headers["Retry-After"] = str(sign_ins.WINDOW_S)
        return answer

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Sign in; a right password does not count as a try."""
        sign_ins.succeeded(**self._who())
        return super().form_valid(form)

    def _who(self) -> dict[str, str]:
        return {"address": self.request.META.get("REMOTE_ADDR", ""), "name": self.request.POST.get("username", "")}


@login_not_required
def administration(request: HttpRequest) -> HttpResponse:
    """Send to the sign-in; somebody who is signed in already lacks the right."""
    if request.user.is_authenticated:
        raise PermissionDenied("The administration is for people with the staff status.")
    wanted = {"next": request.GET.get("next") or reverse("admin:index")}
    return redirect(f"{reverse('login')}?{urlencode(wanted)}")
