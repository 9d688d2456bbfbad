"""The project as a WSGI app."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "serve_django.settings")

application = get_wsgi_application()
