"""Evidence sets of KILT: which passages and pages of an index are gold, and rankings measured by them."""
