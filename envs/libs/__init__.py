"""Others' worlds for us, as batched TorchRL environments: Gymnasium's, VMAS's, PettingZoo's."""
