"""The project as an ASGI app: async views run on the event loop, the others in a thread of their request."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "serve_django.settings")

application = get_asgi_application()
