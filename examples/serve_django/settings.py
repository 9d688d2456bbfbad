"""Settings for production, but for the key: no DEBUG, errors on standard error. No database."""

import os

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "an example has no secrets")
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "serve_django.urls"
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
]
# Where DEBUG is off, Django mails what a view raised, and prints nothing. Clutch shows what a worker prints.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}
