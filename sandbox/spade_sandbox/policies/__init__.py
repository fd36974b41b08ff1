"""System call policies of the jail as a whole, in nsjail's Kafel language. Data only."""
