"""A Django project of one folder, as ASGI or as WSGI app. Nothing in it knows of Clutch.

Run: cd examples && clutch serve serve_django.asgi
or: cd examples && clutch serve serve_django.wsgi --threads 8
Then: curl http://127.0.0.1:8000/split/90/4
"""
