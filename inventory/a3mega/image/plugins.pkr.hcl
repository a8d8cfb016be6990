# Packer 1.7 and later get their plugins with `packer init`. Earlier ones have them built in, and do not know this block.
packer {
  required_plugins {
    googlecompute = {
      version = "~> 1.2"
      source  = "github.com/hashicorp/googlecompute"
    }
    ansible = {
      version = "~> 1.1"
      source  = "github.com/hashicorp/ansible"
    }
  }
}
