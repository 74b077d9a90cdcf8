"""The conductor agent: commands of clients, and the life of publications, images, subscriptions and endpoints."""
