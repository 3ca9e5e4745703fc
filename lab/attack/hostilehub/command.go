package hostilehub

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/lab"
)

// NewCommand returns the command `attack-agent`.
func NewCommand() *cobra.Command {
	var dir string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "attack-agent NAME...|all|together|list",
		Short: "Attack an agent as a hostile hub could, and report whether it held",
		Long: `Start a member without a hub in DIR, run the built agent beside it in a cgroup of
256 MiB, and attack the agent as its hub. The agent held if its process lived, the
member kept its objects, the member's Lease was renewed in time, and the agent served
an honest hub afterwards. The exit code is 1 if it did not hold.

The command needs root for the cgroup. "atoll-lab down" ends the member.`,
		Example: `  atoll-lab attack-agent list
  atoll-lab attack-agent many-values --dir /tmp/agentlab
  atoll-lab attack-agent all --dir /tmp/agentlab --for 60s`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Equal(args, []string{"list"}) {
				return printAttacks(cmd)
			}
			chosen, err := chooseRuns(args)
			if err != nil {
				return err
			}
			if dir == "" {
				return errors.New("which directory is the member to be in? Give --dir DIR")
			}
			l, err := lab.BringUp(cmd.Context(), lab.Options{Dir: dir, Members: 1, Hubless: true, Progress: cmd.ErrOrStderr()})
			if err != nil {
				return err
			}
			m, err := OpenMember(l)
			if err != nil {
				return err
			}
			return runAll(cmd, m, chosen, lasts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", os.Getenv("ATOLL_LAB_DIR"), "directory of a lab without a hub; default is $ATOLL_LAB_DIR")
	f.DurationVar(&lasts, "for", 10*time.Second, "how long each attack lasts")
	return cmd
}

// attackRun is one run of the agent: the attacks that it gets at once.
type attackRun struct {
	name    string
	attacks []Attack
}

// runAll carries out all runs, and prints their results.
func runAll(cmd *cobra.Command, m *Member, runs []attackRun, lasts time.Duration) error {
	broken := 0
	for _, run := range runs {
		r := RunAttack(cmd.Context(), m, run.name, run.attacks, lasts)
		if r.Broken != nil {
			broken++
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), r); err != nil {
			return err
		}
	}
	if broken > 0 {
		return fmt.Errorf("the agent did not hold against %d of %d attacks", broken, len(runs))
	}
	return nil
}

func printAttacks(cmd *cobra.Command) error {
	for _, a := range Attacks {
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%-18s %s\n", a.Name, a.Summary); err != nil {
			return err
		}
	}
	return nil
}

// chooseRuns returns the runs of these names.
func chooseRuns(names []string) (chosen []attackRun, err error) {
	for _, name := range names {
		i := slices.IndexFunc(Attacks, func(a Attack) bool { return a.Name == name })
		switch {
		case name == "together":
			chosen = append(chosen, attackRun{name, TogetherAttacks()})
		case name == "all":
			for i := range Attacks {
				chosen = append(chosen, attackRun{Attacks[i].Name, Attacks[i : i+1]})
			}
		case i < 0:
			return nil, fmt.Errorf("there is no attack %q; atoll-lab attack-agent list shows them", name)
		default:
			chosen = append(chosen, attackRun{name, Attacks[i : i+1]})
		}
	}
	return chosen, nil
}
