"""B3 (Barnes and Dubrawski): the loss of a learner on new clusters."""
