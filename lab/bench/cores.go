package bench

import (
	"time"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/lab/bench/coreperf"
)

// measureDecisionLogicCommand measures the cores alone, which takes seconds.
func measureDecisionLogicCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use: "cores", Aliases: []string{"brain"}, Short: "Measure the deciding cores, without a hub: placement, division, rendering", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			numbers, err := measureDecisionLogic()
			if err != nil {
				return err
			}
			return o.writeNumbers(cmd.OutOrStdout(), numbers)
		},
	}
	o.addFormatFlags(cmd)
	return cmd
}

// measureDecisionLogic returns the cost of the cores.
func measureDecisionLogic() (numbers []benchNumber, err error) {
	for _, c := range coreperf.AllCases() {
		cost, err := c.MeasureCost()
		if err != nil {
			return nil, err
		}
		n := benchNumber{What: c.What, Goal: c.Goal, How: c.How, Allocations: &cost.Allocations, Bytes: &cost.Bytes}
		n.Value, n.Unit = scaleDuration(cost.Time)
		numbers = append(numbers, n)
	}
	return numbers, nil
}

func scaleDuration(d time.Duration) (float64, string) {
	switch {
	case d >= time.Second:
		return d.Seconds(), "s"
	case d >= time.Millisecond:
		return float64(d) / float64(time.Millisecond), "ms"
	}
	return float64(d) / float64(time.Microsecond), "µs"
}
