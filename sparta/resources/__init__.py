"""Files that ship inside the package: the Lucene jar, the default model, texts for calibration."""
