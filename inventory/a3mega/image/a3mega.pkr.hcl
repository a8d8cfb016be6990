# An image of nodes, or of login hosts. Packer starts a virtual machine, copies the cluster file and the collection to
# it, runs playbooks/image.yml there with its provisioner ansible-local, and keeps the disk. a3mega.blueprint.yaml runs
# this template for both images. By hand:
#
#     packer init . && packer build -var project_id=... -var zone=... -var subnetwork_name=... \
#       -var cluster_file=/path/to/a3mega.cluster.yml -var collection=/path/to/gpucluster-slurm.tar.gz .

variable "project_id" {
  type = string
}

variable "zone" {
  type = string
}

variable "subnetwork_name" {
  type = string
}

variable "cluster_file" {
  type = string
}

variable "files" {
  description = "What the cluster file names, and its variables: files and directories next to it. Never secrets/."
  type        = list(string)
  default     = ["group_vars", "packages", "tcpxo-start.sh", "tcpxo-stop.sh"]
}

variable "collection" {
  description = "The tarball of the collection (ansible-galaxy collection build)."
  type        = string
}

variable "ansible_core" {
  description = "The release of ansible-core that runs on the virtual machine."
  type        = string
  default     = "2.19.14"
}

variable "image_of" {
  description = "A host of the cluster file. The image fits all hosts of its kind."
  type        = string
  default     = "a3-0"
}

variable "image_family" {
  type    = string
  default = "a3mega-node"
}

variable "source_image" {
  description = "An image with NVIDIA's driver."
  type        = string
  default     = "ubuntu-accelerator-2404-amd64-with-nvidia-580-v20260522"
}

variable "source_image_project_id" {
  type    = string
  default = "ubuntu-os-accelerator-images"
}

variable "machine_type" {
  description = "It needs no GPU: nothing is measured while an image is built."
  type        = string
  default     = "c2-standard-8"
}

variable "disk_size" {
  description = "In GB, as for the instances."
  type        = number
  default     = 200
}

locals {
  # In memory: neither the scan for secrets nor the image has what is there.
  staging = "/run/gpucluster-slurm-image"
  next_to = dirname(var.cluster_file)
}

source "googlecompute" "host" {
  project_id              = var.project_id
  zone                    = var.zone
  subnetwork              = var.subnetwork_name
  machine_type            = var.machine_type
  disk_size               = var.disk_size
  disk_type               = "pd-ssd"
  source_image            = var.source_image
  source_image_project_id = [var.source_image_project_id]
  image_family            = var.image_family
  image_name              = "${var.image_family}-${formatdate("YYYYMMDD-hhmmss", timestamp())}"
  ssh_username            = "packer"
  use_iap                 = true
  omit_external_ip        = true
  use_internal_ip         = true
  metadata = {
    block-project-ssh-keys = "TRUE"
    # No default user: the first mount of /home wants it to be empty.
    user-data = "#cloud-config\nusers: []\n"
    # Google's agent has made the user of Packer, with its key.
    shutdown-script = "#!/bin/sh\nuserdel --force --remove packer\n"
  }
}

build {
  sources = ["source.googlecompute.host"]

  provisioner "shell" {
    inline = [
      "sudo mkdir -p ${local.staging}",
      "sudo mount -t tmpfs -o mode=0700,uid=$(id -u) tmpfs ${local.staging}", # /run itself can be noexec
    ]
  }

  provisioner "file" {
    sources     = concat([var.collection, "${path.root}/ansible.cfg"], [for name in var.files : "${local.next_to}/${name}"])
    destination = "${local.staging}/"
  }

  provisioner "shell" {
    script          = "${path.root}/prepare.sh"
    execute_command = "cd ${local.staging} && {{ .Vars }} bash '{{ .Path }}'"
    environment_vars = [
      "COLLECTION=${basename(var.collection)}",
      "ANSIBLE_CORE=${var.ansible_core}",
    ]
  }

  provisioner "ansible-local" {
    command           = "PYTHONUNBUFFERED=1 ${local.staging}/ansible/bin/ansible-playbook"
    playbook_file     = "${path.root}/image.yml"
    inventory_file    = var.cluster_file
    extra_arguments   = ["-e", "image_of=${var.image_of}", "-e", "ansible_connection=local"]
    staging_directory = local.staging
  }
}
