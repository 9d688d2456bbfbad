from django.urls import path

from serve_django import views

urlpatterns = [
    path("", views.greet),
    path("split/<int:total>/<int:people>", views.split),
    path("digest", views.digest),
    path("countdown/<int:n>", views.countdown),
]
