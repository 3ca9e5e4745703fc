package lab

import (
	"context"
	"strings"

	"atoll.dev/atoll/lab/process"
	"atoll.dev/atoll/lab/relay"
)

// Status is a lab at a moment, in the form of "atoll-lab status -o json".
type Status struct {
	Dir        string            `json:"dir"`
	Components []ComponentStatus `json:"components"`
}

// ComponentStatus is one component at a moment.
type ComponentStatus struct {
	Name  string        `json:"name"`
	State process.State `json:"state"`
	PID   int           `json:"pid,omitempty"`
	// Port is its loopback port, if it serves.
	Port int `json:"port,omitempty"`
	// Ready reports whether it works; if not, Waiting names the missing part.
	Ready   bool   `json:"ready"`
	Waiting string `json:"waiting,omitempty"`
	// Link is an agent's link to the hub.
	Link relay.Mode `json:"link,omitempty"`
	// Kubeconfig is set for the hub and members.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Log        string `json:"log"`
}

// ReadStatus reads the state of every component.
func (l *Lab) ReadStatus(ctx context.Context) (Status, error) {
	r, err := l.loadRecord()
	if err != nil {
		return Status{}, err
	}
	// A lab without a running relay shows no links; the relay's own state shows the cause.
	links, _ := l.relayClient().ReadStatus(ctx)
	status := Status{Dir: l.dir}
	for _, c := range r.allComponents() {
		state, pid := c.process.CurrentState()
		s := ComponentStatus{Name: c.name, State: state, PID: pid, Port: c.port, Kubeconfig: c.publish[1], Log: c.process.Log}
		if state == process.Running {
			err := c.ready(ctx)
			s.Ready = err == nil
			if err != nil {
				s.Waiting = err.Error()
			}
		}
		if member, isAgent := strings.CutPrefix(c.name, agentPrefix); isAgent {
			s.Link = links[member].Mode
		}
		status.Components = append(status.Components, s)
	}
	return status, nil
}
