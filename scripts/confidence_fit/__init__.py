"""Parts of scripts/fit_confidence: drawn pictures, features, the fit, and the reliability diagram."""
