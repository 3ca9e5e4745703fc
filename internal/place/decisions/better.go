package decisions

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// gatherScores is how long news of what clusters score are gathered before a Placement that
// may move is decided anew.
const gatherScores = 10 * time.Second

// standing of a Placement's last decision: what decides whether scores and time change it.
// It is lost with the hub's process, so that a hold time begins anew.
type standing struct {
	scores *schedule.Standing // nil: scores change nothing
	chosen map[string]v1alpha1.ClusterDecision
	better schedule.Better
}

func (p *Publisher) stands(key types.NamespacedName, d schedule.Decision, chosen map[string]v1alpha1.ClusterDecision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.standings[key] = standing{d.Standing, chosen, d.Better}
}

func (p *Publisher) stood(key types.NamespacedName) standing {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.standings[key]
}

// rescore looks at the Placements that may move now that a cluster reports other amounts.
func (p *Publisher) rescore(c *schedule.Cluster) {
	for _, pl := range p.Placements.List() {
		s := p.stood(pl.Key())
		if s.scores == nil {
			continue
		}
		in := schedule.Input{}
		if p.Feed != nil {
			p.Feed(&in, pl.Meta.Namespace)
		}
		var row *atoll.RowSpec
		if _, holds := s.chosen[c.Name]; holds {
			row = &atoll.RowSpec{Phase: atoll.RowActive}
		}
		f := p.filter(pl)
		if row == nil && !f.Admits(c) {
			continue
		}
		if moves, score := f.Weigh(c, row, &in, s.scores); moves {
			p.loop.LookAfter(pl.Key(), gatherScores)
		} else {
			p.drifted(pl.Key(), s, row != nil, score)
		}
	}
}

// drifted notes what a cluster came to score, which moves nothing by itself.
func (p *Publisher) drifted(key types.NamespacedName, s standing, holds bool, score int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := *s.scores
	if holds {
		now.Worst = min(now.Worst, score)
	} else {
		now.Other = max(now.Other, score)
	}
	if is, ok := p.standings[key]; ok && is.scores == s.scores {
		is.scores = &now
		p.standings[key] = is
	}
}
