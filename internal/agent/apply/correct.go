package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/atoll"
)

const (
	// fightAfter corrections within fightWindow are a fight.
	fightAfter  = 5
	fightWindow = 10 * time.Minute
)

// correctionHistory is the history of an object's corrections.
type correctionHistory struct {
	at     []time.Time
	fields []string
	by     string
}

// recordCorrection adds a correction and reports whether there are too many.
func (d *correctionHistory) recordCorrection(now time.Time, fields []string, by string) bool {
	d.at = slices.DeleteFunc(d.at, func(t time.Time) bool { return now.Sub(t) > fightWindow })
	d.at, d.fields, d.by = append(d.at, now), fields, by
	return len(d.at) > fightAfter
}

// correctDrift applies the item again because a field of ours was changed.
func (e *MemberApplier) correctDrift(ctx context.Context, p pendingWork) *Failure {
	before, was := p.view, p.hasView
	res, failure := e.resourceFor(ctx, p.Key, p.Item.APIVersion)
	if failure != nil {
		return failure
	}
	if failure := e.update(ctx, p, res); failure != nil {
		return failure
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	after, _ := e.viewOf(p.Key)
	if !was || before.Version == after.Version {
		return nil
	}
	fields, by := observe.LostFields(after.Fields, before.Fields, 3), "another manager"
	if n := len(before.Others); n > 0 {
		by = before.Others[n-1]
	}
	e.o.Metrics.countCorrection()
	e.o.Log.Info("corrected", "object", p.Key, "fields", fields, "changedBy", by)
	d := &e.ensureTask(p.Key).corrections
	if !d.recordCorrection(time.Now(), fields, by) {
		return nil
	}
	return &Failure{
		Reason: atoll.ReasonDriftFight, Waits: true, First: 15 * time.Second, Most: 5 * time.Minute,
		Message: truncateText(fmt.Sprintf("%s changed %s again after each of %d corrections: stop that writer, or take the field out of the template",
			d.by, joinFieldNames(d.fields), len(d.at))),
	}
}

func joinFieldNames(fields []string) string {
	if len(fields) == 0 {
		return "fields"
	}
	return strings.Join(fields, ", ")
}
