package lab

import (
	"context"
	"strings"

	"atoll.dev/atoll/internal/lab/process"
	"atoll.dev/atoll/internal/lab/relay"
)

// Status is a lab at a moment, as "atoll-lab status -o json" prints it.
type Status struct {
	Dir        string            `json:"dir"`
	Components []ComponentStatus `json:"components"`
}

// ComponentStatus is one component at a moment.
type ComponentStatus struct {
	Name  string        `json:"name"`
	State process.State `json:"state"`
	PID   int           `json:"pid,omitempty"`
	// Port is where it serves on loopback, if it serves.
	Port int `json:"port,omitempty"`
	// Ready says whether it works; if not, Waiting says what is missing.
	Ready   bool   `json:"ready"`
	Waiting string `json:"waiting,omitempty"`
	// Link is an agent's link to the hub.
	Link relay.Mode `json:"link,omitempty"`
	// Kubeconfig is set for the hub and members.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Log        string `json:"log"`
}

// Status looks at every component.
func (l *Lab) Status(ctx context.Context) (Status, error) {
	r, err := l.load()
	if err != nil {
		return Status{}, err
	}
	// A lab whose relay is down has no links to show; that it is down shows.
	links, _ := l.relay().Status(ctx)
	status := Status{Dir: l.dir}
	for _, c := range r.components() {
		state, pid := c.process.State()
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
