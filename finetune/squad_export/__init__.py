"""`python -m finetune.squad_export` is `multiberts squad-export`."""
