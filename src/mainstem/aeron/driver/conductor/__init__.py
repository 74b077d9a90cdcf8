"""The conductor agent: client commands, and the life of publications, images, subscriptions and endpoints."""
