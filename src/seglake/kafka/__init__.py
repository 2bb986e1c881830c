"""What a Kafka broker keeps in its folders: taken in, and made for another broker."""
