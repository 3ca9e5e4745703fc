// Package deploy holds the manifests with which Atoll is installed, and carries them
// into the CLI.
//
// Contract: the files are complete and valid as they lie here; who embeds them may
// set the image and the Secret, nothing else.
package deploy

import _ "embed"

// Agent is agent.yaml: what `atoll join` applies in a member.
//
//go:embed agent.yaml
var Agent []byte
