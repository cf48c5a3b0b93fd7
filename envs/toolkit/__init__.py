"""What games are made of: chance, records, geometry, pictures. Knows no game."""
