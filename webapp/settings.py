"""All settings, from the environment. A bad value stops the start with a sentence that says what is right.

Variables begin with STEPKEEPER_; each may be given as NAME_FILE, a file that holds the value (secrets).
docs/settings.md lists them all.
"""

import os
import secrets
from pathlib import Path
from tempfile import gettempdir
from urllib.parse import urlsplit

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent
VERSION = "0.1.0"


def env(name: str, default: str = "") -> str:
    """Return STEPKEEPER_<name>, or the content of the file that STEPKEEPER_<name>_FILE names."""
    full = f"STEPKEEPER_{name}"
    path = os.environ.get(f"{full}_FILE")
    if path:
        try:
            return Path(path).read_text().strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{full}_FILE: cannot read {path} ({error.strerror}).") from error
    return os.environ.get(full, default)


def env_bool(name: str, *, default: bool) -> bool:
    """Return a yes/no setting."""
    value = env(name, "yes" if default else "no").lower()
    if value in {"1", "yes", "true", "on"}:
        return True
    if value in {"0", "no", "false", "off"}:
        return False
    raise ImproperlyConfigured(f"STEPKEEPER_{name}: {value!r} is neither yes nor no.")


def env_number(name: str, default: float, *, least: float, most: float) -> float:
    """Return a number within limits."""
    value = env(name, str(default))
    try:
        number = float(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"STEPKEEPER_{name}: {value!r} is not a number.") from error
    if not least <= number <= most:
        raise ImproperlyConfigured(f"STEPKEEPER_{name}: {number:g} is not between {least:g} and {most:g}.")
    return number


def kept_secret(name: str, folder: Path) -> str:
    """Return a secret setting; when unset, one made once and kept in the data folder (mode 0600)."""
    given = env(name)
    if given:
        return given
    path = folder / f"{name.lower()}.secret"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            kept = path.read_text().strip()
            if kept:
                return kept
            handle = os.open(path, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(48))
        return path.read_text().strip()
    except OSError as error:
        raise ImproperlyConfigured(
            f"STEPKEEPER_DATA_DIR: cannot keep secrets in {folder} ({error.strerror}). "
            f"Name a writable folder, or set STEPKEEPER_{name}."
        ) from error


DATA_DIR = Path(env("DATA_DIR", str(BASE_DIR / "var"))).absolute()
DEBUG = env_bool("DEBUG", default=False)
SECRET_KEY = kept_secret("SECRET_KEY", DATA_DIR)
JOIN_TOKEN = kept_secret("JOIN_TOKEN", DATA_DIR)
ALLOWED_HOSTS = [host for host in env("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",") if host]
CSRF_TRUSTED_ORIGINS = [origin for origin in env("TRUSTED_ORIGINS").split(",") if origin]
LISTEN = env("LISTEN", "127.0.0.1:8000")
BROKER_PORT = int(env_number("BROKER_PORT", 6390, least=1, most=65535))
EMBEDDED_BROKER_URL = f"redis://127.0.0.1:{BROKER_PORT}/0"
BROKER_URL = env("BROKER_URL", EMBEDDED_BROKER_URL)
CHANNEL_URL = env("CHANNEL_URL", BROKER_URL if BROKER_URL.startswith("redis") else EMBEDDED_BROKER_URL)
AGENT_BROKER_URL = env("AGENT_BROKER_URL", BROKER_URL)
STORAGE_DIR = env("STORAGE_DIR", str(DATA_DIR / "storage"))
if "://" not in STORAGE_DIR:
    STORAGE_DIR = str(Path(STORAGE_DIR).absolute())
for _name, _url in (("BROKER_URL", BROKER_URL), ("CHANNEL_URL", CHANNEL_URL), ("AGENT_BROKER_URL", AGENT_BROKER_URL)):
    if urlsplit(_url).scheme not in {"redis", "rediss", "redis+socket", "unix", "amqp", "amqps"}:
        raise ImproperlyConfigured(f"STEPKEEPER_{_name}: begins with neither redis:// nor amqp://.")

STEPKEEPER = {
    "heartbeat_s": env_number("HEARTBEAT_S", 1.0, least=0.1, most=60),
    "lease_s": env_number("LEASE_S", 4.0, least=0.5, most=600),
    "silence_s": env_number("SILENCE_S", 6.0, least=1, most=3600),
    "proof_s": env_number("PROOF_S", 3.0, least=0.5, most=3600),
    "lone_node_s": env_number("LONE_NODE_S", 60, least=1, most=86400),
    "approval_ttl_s": env_number("APPROVAL_TTL_S", 600, least=10, most=86400),
    "validation_max_age_s": env_number("VALIDATION_MAX_AGE_S", 900, least=0, most=604800),
    "order_ttl_s": env_number("ORDER_TTL_S", 60, least=5, most=3600),
    "fence_limit_s": env_number("FENCE_LIMIT_S", 5, least=0.5, most=600),
    "restore_limit_s": env_number("RESTORE_LIMIT_S", 120, least=1, most=7200),
    "start_limit_s": env_number("START_LIMIT_S", 120, least=1, most=7200),
    "verify_limit_s": env_number("VERIFY_LIMIT_S", 120, least=1, most=7200),
    "max_attempts": int(env_number("MAX_ATTEMPTS", 5, least=1, most=100)),
    "back_off_s": env_number("BACK_OFF_S", 1, least=0, most=3600),
    "back_off_longest_s": env_number("BACK_OFF_LONGEST_S", 300, least=0, most=86400),
    "progress_steps": int(env_number("PROGRESS_STEPS", 1000, least=1, most=1e12)),
    "near_steps": int(env_number("NEAR_STEPS", 10, least=0, most=1e6)),
    "class_actions": env("CLASS_ACTIONS"),
    "radius_share": env_number("RADIUS_SHARE", 0.5, least=0.01, most=1),
    "radius_nodes": int(env_number("RADIUS_NODES", 8, least=2, most=1e6)),
    "radius_window_s": env_number("RADIUS_WINDOW_S", 60, least=1, most=3600),
}
RECONCILE_S = env_number("RECONCILE_S", 1.0, least=0.2, most=60)
VALIDATE_STANDBYS = env_bool("VALIDATE_STANDBYS", default=True)
HANG_FLOOR_S = env_number("HANG_FLOOR_S", 30, least=5, most=86400)
HANG_STEPS = env_number("HANG_STEPS", 5, least=2, most=1000)
HANG_WARM_UP_S = env_number("HANG_WARM_UP_S", 120, least=5, most=86400)
QUIET_S = env_number("QUIET_S", 600, least=10, most=604800)
NEWCOMER_S = env_number("NEWCOMER_S", 900, least=0, most=604800)
REPLAN_S = env_number("REPLAN_S", 60, least=1, most=86400)
RETAIN_S = env_number("RETAIN_S", 10, least=0.5, most=86400)
TRIAL_LIMIT_S = env_number("TRIAL_LIMIT_S", 3600, least=1, most=21600)
TRIAL_BYTES_PER_S = env_number("TRIAL_BYTES_PER_S", 200e6, least=0, most=1e12)
PLAN_WINDOW_S = env_number("PLAN_WINDOW_S", 2592000, least=60, most=315360000)
WARN_FULL_WITHIN_S = env_number("WARN_FULL_WITHIN_S", 3600, least=0, most=31536000)
WARN_FREE_SHARE = env_number("WARN_FREE_SHARE", 0.05, least=0, most=0.95)
KEEP_REPORTS_DAYS = env_number("KEEP_REPORTS_DAYS", 7, least=1, most=3650)
MAX_INGEST_BYTES = int(env_number("MAX_INGEST_BYTES", 4 * 2**20, least=2**12, most=2**30))

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "rest_framework.authtoken",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_filters",
    "django_tables2",
    "reliability",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "webapp.csp.ContentSecurityPolicy",
    "webapp.visible.VisibleText",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "webapp.urls"
ASGI_APPLICATION = "webapp.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASE_URL = env("DATABASE_URL", f"sqlite:///{DATA_DIR / 'stepkeeper.sqlite3'}")
try:
    DATABASES = {"default": dj_database_url.parse(DATABASE_URL, conn_max_age=60, conn_health_checks=True)}
except Exception as error:
    raise ImproperlyConfigured(
        "STEPKEEPER_DATABASE_URL: not a database address. Examples: sqlite:////srv/stepkeeper.sqlite3, "
        "postgresql://user:password@host/name"
    ) from error
if DATABASES["default"].get("ENGINE", "").endswith("sqlite3"):
    DATABASES["default"]["ENGINE"] = "webapp.sqlite3"
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,  # until the connection is open; then webapp/sqlite3 waits
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=2;",
    }
    # Tests use a file as well, in a folder of the run (tests/conftest.py): threads cannot share a database in memory.
    DATABASES["default"]["TEST"] = {"NAME": str(Path(gettempdir()) / f"stepkeeper-test-{os.getpid()}.sqlite3")}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
CSRF_FAILURE_VIEW = "reliability.views.errors.bad_form"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = env_bool("HTTPS", default=False)
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
_collected = BASE_DIR / "staticfiles"
STATIC_ROOT = _collected if _collected.is_dir() else None  # make the folder before collectstatic
WHITENOISE_USE_FINDERS = True
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}

CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {"hosts": [{"address": CHANNEL_URL, "socket_timeout": None}], "prefix": "stepkeeper"},
    }
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PARSER_CLASSES": [
        "reliability.api.parsers.BoundedJSONParser",
        "rest_framework.parsers.FormParser",
        "rest_framework.parsers.MultiPartParser",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "reliability.api.paging.Pages",
    "PAGE_SIZE": 100,
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "reliability.api.mistakes.answer",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Stepkeeper",
    "DESCRIPTION": "Nodes, jobs, snapshots, incidents, failovers and plans of guarded training jobs. "
    "A token may do what its person may; what changes something says so.",
    "VERSION": VERSION,
    "SERVE_INCLUDE_SCHEMA": False,
    "ENUM_NAME_OVERRIDES": {
        "ActionEnum": "reliability.api.serializers.ACTIONS",
        "ActionModeEnum": "reliability.models.decisions.MODES",
        "DecisionVerdictEnum": "reliability.api.decisions.VERDICTS",
        "TierEnum": "reliability.api.snapshot_serializers.TIERS",
        "RuledTierEnum": "reliability.api.retention.RULED_TIERS",
        "StandingEnum": "reliability.api.snapshot_serializers.STANDINGS",
    },
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "validatorUrl": None},
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "filters": {"one_line": {"()": "webapp.logs.OneLine"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env("LOG_LEVEL", "INFO").upper()},
    # three lines for every task would hide what happens: the reconciler runs each second
    "loggers": {
        **{name: {"level": "WARNING"} for name in ("celery.app.trace", "celery.worker.strategy", "celery.beat")},
        "channels_redis": {"level": "ERROR"},  # a page that was closed misses hints, and nobody else does
        "django.request": {"filters": ["one_line"]},
    },
}
