#!/usr/bin/env bash
# `celery -A proj call` and `celery -A proj result` fail in a Django project that keeps results in django-db: Django is
# not set up there. The same project's `celery inspect registered` and its workers are fine.
#
# Seen: celery 5.7.0, Django 5.2.19, django-celery-results 2.6.0, CPython 3.11.7, proj/celery.py as in Celery's manual:
# both end with AppRegistryNotReady, and no task is sent. With `django.setup()` at the end of proj/celery.py it is sent.
#
# Why: Celery calls django.setup() when it imports the modules of tasks, which `worker`, `beat` and `shell` do and `call`
# and `result` don't; the backend imports models.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
bin="$folder/env/bin"
"$bin/python" -m pip install --quiet --disable-pip-version-check \
  celery==5.7.0 django==5.2.19 django-celery-results==2.6.0
mkdir "$folder/proj" "$folder/queue"
cd "$folder"
cat >proj/settings.py <<PROGRAM
SECRET_KEY = "none"
INSTALLED_APPS = ["django_celery_results"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "$folder/db"}}
USE_TZ = True
CELERY_BROKER_URL = "filesystem://"
CELERY_BROKER_TRANSPORT_OPTIONS = {"data_folder_in": "$folder/queue", "data_folder_out": "$folder/queue"}
CELERY_RESULT_BACKEND = "django-db"
PROGRAM
cat >proj/celery.py <<'PROGRAM'
import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")
app = Celery("proj")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@app.task
def add(a, b):
    return a + b
PROGRAM
echo 'from .celery import app as celery_app' >proj/__init__.py
DJANGO_SETTINGS_MODULE=proj.settings "$bin/django-admin" migrate --pythonpath . --verbosity 0

asks() { "$bin/celery" -A proj call proj.celery.add --args='[1, 2]' 2>&1 | tail -1; }
queued() { find queue -name '*.celery.msg' | wc -l; }

called=$(asks || true) before=$(queued)
told=$(timeout 20 "$bin/celery" -A proj result some-id 2>&1 | tail -1 || true)
printf '%s\n' "import django" "django.setup()" >>proj/celery.py
called_then=$(asks) after=$(queued)
echo "call: $called; messages: $before"
echo "result: $told"
echo "call with django.setup(): $called_then; messages: $after"
[[ $called == *AppRegistryNotReady* && $told == *AppRegistryNotReady* ]] || { echo changed; exit 1; }
[[ $called_then =~ ^[0-9a-f-]{36}$ && $after == $((before + 1)) ]] || { echo changed; exit 1; }
