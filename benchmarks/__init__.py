"""Speed against what people would use instead; ``make bench`` runs what is here."""
