// Package crds holds the CustomResourceDefinitions of Atoll's kinds, generated
// from the Go types, as the hub installs them at its start.
package crds

import "embed"

// Files has one YAML file per kind.
//
//go:embed *.yaml
var Files embed.FS
