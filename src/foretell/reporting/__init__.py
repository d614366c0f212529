"""Reports: result files of the other commands, as one page with tables and figures. No model is loaded."""
