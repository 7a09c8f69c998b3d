"""Instance-level statistics (Zhong et al., 2021)."""
