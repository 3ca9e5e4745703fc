package bench

import (
	"time"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/bench/brain"
)

// brainCommand measures the cores alone, which takes seconds.
func brainCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "brain", Short: "Measure what decides, without a hub: placement, division, rendering", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			numbers, err := brainNumbers()
			if err != nil {
				return err
			}
			return o.tell(cmd.OutOrStdout(), numbers)
		},
	}
	o.addFormats(cmd)
	return cmd
}

// brainNumbers are what the cores cost.
func brainNumbers() (numbers []number, err error) {
	for _, c := range brain.Cases() {
		cost, err := c.Measure()
		if err != nil {
			return nil, err
		}
		n := number{What: c.What, Goal: c.Goal, How: c.How, Allocations: &cost.Allocations, Bytes: &cost.Bytes}
		n.Value, n.Unit = inUnits(cost.Time)
		numbers = append(numbers, n)
	}
	return numbers, nil
}

func inUnits(d time.Duration) (float64, string) {
	switch {
	case d >= time.Second:
		return d.Seconds(), "s"
	case d >= time.Millisecond:
		return float64(d) / float64(time.Millisecond), "ms"
	}
	return float64(d) / float64(time.Microsecond), "µs"
}
