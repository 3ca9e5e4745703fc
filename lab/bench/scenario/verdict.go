package scenario

import (
	"context"
	"time"

	"atoll.dev/atoll/lab/bench/verify"
)

// verifyFleet checks every row, every agent and every template against the applications; late
// arrivals get patience.
func (s *testbed) verifyFleet(ctx context.Context, patience time.Duration, apps []application) error {
	return s.verifyFleetHealth(ctx, patience, apps, false)
}

// verifyFleetHealth also accepts a fleet with unhealthy members.
func (s *testbed) verifyFleetHealth(ctx context.Context, patience time.Duration, apps []application, unhealthy bool) error {
	return s.verifyFleetFor(ctx, patience, wantedApps(apps), unhealthy)
}

// verifyFleetFor takes the expected state at each comparison.
func (s *testbed) verifyFleetFor(ctx context.Context, patience time.Duration, apps []verify.WantedApp, unhealthy bool) error {
	s.Progress.BeginStep("checking every row, agent and template", 0)
	begin := time.Now()
	check := verify.FleetCheck{API: s.kube.CoreV1().RESTClient(), Apps: apps, Unhealthy: unhealthy}
	for _, a := range s.agentFleets() {
		check.Fleets = append(check.Fleets, a.control)
	}
	var v verify.Verdict
	var looking time.Duration
	for {
		look := time.Now()
		var err error
		if v, err = check.CompareOnce(ctx); err != nil {
			return err
		}
		looking = time.Since(look)
		if v.IsCorrect() || time.Since(begin) > patience {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(time.Second, looking)): // reading a million rows is work for the hub
		}
	}
	s.report.AddTime("until_all_true", time.Since(begin))
	s.report.AddTime("last_look_at_everything", looking)
	s.report.AddCount("rows", float64(v.Rows), "rows")
	s.report.AddCheck("every row is right: placement, phase, and its status at its generation", v.RowsOK(), "%s", v.DescribeRows())
	s.report.AddCheck("every agent holds exactly what it should", v.HoldingsOK(), "%s", v.DescribeHoldings())
	s.report.AddCheck("every template's status and every Bundle is right", v.TemplatesOK(), "%s", v.DescribeTemplates())
	return nil
}
