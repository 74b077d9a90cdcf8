"""The conductor agent: client commands, and the life cycles of publications, images, subscriptions and endpoints."""
