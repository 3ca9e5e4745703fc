package decisions

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// scoreDebounce is how long changes of scores are collected before a Placement that may move is
// decided again.
const scoreDebounce = 10 * time.Second

// lastDecision decides whether scores and time change a Placement's choice. It is lost with the
// process, so that a hold time starts again.
type lastDecision struct {
	standing *schedule.ScoreThresholds // nil: scores change nothing
	clusters map[string]v1alpha1.ClusterDecision
	better   schedule.PendingFailback
}

func (p *DecisionPublisher) storeLastDecision(key types.NamespacedName, d schedule.Decision, chosen map[string]v1alpha1.ClusterDecision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastDecisions[key] = lastDecision{d.ScoreThresholds, chosen, d.PendingFailback}
}

func (p *DecisionPublisher) lastDecisionOf(key types.NamespacedName) lastDecision {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastDecisions[key]
}

// enqueueAffectedByScore enqueues the Placements that may move after a cluster reports other resources.
func (p *DecisionPublisher) enqueueAffectedByScore(c *schedule.Cluster) {
	for _, pl := range p.Placements.List() {
		s := p.lastDecisionOf(pl.Key())
		if s.standing == nil {
			continue
		}
		in := schedule.Input{}
		if p.SetInterest != nil {
			p.SetInterest(&in, pl.Meta.Namespace)
		}
		var row *atoll.RowSpec
		if _, holds := s.clusters[c.Name]; holds {
			row = &atoll.RowSpec{Phase: atoll.RowActive}
		}
		f := p.filterOf(pl)
		if row == nil && !f.AdmitsCluster(c) {
			continue
		}
		if moves, score := f.ScoreForMove(c, row, &in, s.standing); moves {
			p.loop.EnqueueAfter(pl.Key(), scoreDebounce)
		} else {
			p.recordScore(pl.Key(), s, row != nil, score)
		}
	}
}

// recordScore records a cluster's score that moves nothing by itself.
func (p *DecisionPublisher) recordScore(key types.NamespacedName, s lastDecision, holds bool, score int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := *s.standing
	if holds {
		now.LowestChosen = min(now.LowestChosen, score)
	} else {
		now.HighestOther = max(now.HighestOther, score)
	}
	if is, ok := p.lastDecisions[key]; ok && is.standing == s.standing {
		is.standing = &now
		p.lastDecisions[key] = is
	}
}
