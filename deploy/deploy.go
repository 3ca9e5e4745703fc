// Package deploy holds the manifests with which Atoll is installed, and carries them
// into the CLI.
//
// Contract: the files are complete and valid as they lie here; who embeds them may
// set the image and the Secret, nothing else. They are made of the charts.
package deploy

import _ "embed"

// Agent is agent.yaml: what `atoll join` applies in a member.
//
//go:embed agent.yaml
var Agent []byte

// AgentAllow is agent-allow.yaml: what lets the agent do more. Each object carries the name
// of the opt-in that it is for, in its label LabelAllow.
//
//go:embed agent-allow.yaml
var AgentAllow []byte

// LabelAllow is on what lets an agent do more than it may by default.
const LabelAllow = "agent.atoll.dev/allow"
