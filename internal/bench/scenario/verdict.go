package scenario

import (
	"context"
	"time"

	"atoll.dev/atoll/internal/bench/truth"
)

// tellTruth checks that every row, every agent and every template is as the
// applications say; what has not arrived yet gets patience.
func (s *stage) tellTruth(ctx context.Context, patience time.Duration, apps []app) error {
	return s.tellTruthOf(ctx, patience, apps, false)
}

// tellTruthOf also takes a fleet in which not every member is healthy.
func (s *stage) tellTruthOf(ctx context.Context, patience time.Duration, apps []app, unhealthy bool) error {
	return s.tellTruthFor(ctx, patience, expectations(apps), unhealthy)
}

// tellTruthFor takes what has to be true as it is compared.
func (s *stage) tellTruthFor(ctx context.Context, patience time.Duration, apps []truth.App, unhealthy bool) error {
	s.Progress.Step("checking every row, agent and template", 0)
	begin := time.Now()
	check := truth.Check{API: s.kube.CoreV1().RESTClient(), Apps: apps, Unhealthy: unhealthy}
	for _, a := range s.simulators() {
		check.Fleets = append(check.Fleets, a.control)
	}
	var v truth.Verdict
	var looking time.Duration
	for {
		look := time.Now()
		var err error
		if v, err = check.Look(ctx); err != nil {
			return err
		}
		looking = time.Since(look)
		if v.OK() || time.Since(begin) > patience {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(time.Second, looking)): // a look at a million rows is work for the hub
		}
	}
	s.report.Time("until_all_true", time.Since(begin))
	s.report.Time("last_look_at_everything", looking)
	s.report.Count("rows", float64(v.Rows), "rows")
	s.report.Check("every row is right: placement, phase, and its status at its generation", v.RowsOK(), "%s", v.RowsSay())
	s.report.Check("every agent holds exactly what it should", v.HoldingsOK(), "%s", v.HoldingsSay())
	s.report.Check("every template's status and every Bundle is right", v.TemplatesOK(), "%s", v.TemplatesSay())
	return nil
}
