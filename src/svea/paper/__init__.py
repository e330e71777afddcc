"""The paper's tables, figures and claims, as studies."""
