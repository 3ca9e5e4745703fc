package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/phrase"
)

// NewAttackCommand returns the command `attack`.
func NewAttackCommand() *cobra.Command {
	var dir, kubeconfig string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "attack NAME...|all|together|list",
		Short: "Attack a hub as strangers, agents, tenants and people could, and report whether it held",
		Long: `Attack a hub of your own, and report whether it held: whether an administrator's
requests were answered within a second, how much memory the hub took, and whether the
attack reached its aim. The exit code is 1 if the hub did not hold.

Attacks create objects named "attacker" in the hub, which stay. Never attack a hub in use.`,
		Example: `  atoll-lab attack list
  atoll-lab attack huge-key --dir /tmp/lab
  atoll-lab attack all --dir /tmp/lab --for 60s`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Equal(args, []string{"list"}) {
				return printAttacks(cmd)
			}
			chosen, err := chooseAttacks(args)
			if err != nil {
				return err
			}
			if kubeconfig == "" {
				if dir == "" {
					return errors.New("which hub is to be attacked? Give --dir DIR of a lab, or --kubeconfig FILE")
				}
				kubeconfig = filepath.Join(dir, "hub.kubeconfig")
			}
			t, err := OpenTarget(cmd.Context(), kubeconfig)
			if err != nil {
				return err
			}
			broken := 0
			for _, a := range chosen {
				r := RunAttack(cmd.Context(), t, a, lasts)
				if r.Broken != nil {
					broken++
				}
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), r); err != nil {
					return err
				}
			}
			if broken > 0 {
				return fmt.Errorf("the hub did not hold against %d of %d attacks", broken, len(chosen))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", os.Getenv("ATOLL_LAB_DIR"), "the lab's directory; default is $ATOLL_LAB_DIR")
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the hub's administrator; default is the lab's")
	f.DurationVar(&lasts, "for", 10*time.Second, "how long each attack lasts")
	return cmd
}

func printAttacks(cmd *cobra.Command) error {
	for _, a := range Attacks {
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%-20s %-9s %s\n", a.Name, a.Caller, a.Summary); err != nil {
			return err
		}
	}
	return nil
}

// chooseAttacks returns the attacks of these names.
func chooseAttacks(names []string) (chosen []Attack, err error) {
	switch {
	case slices.Equal(names, []string{"all"}):
		return Attacks, nil
	case slices.Equal(names, []string{"together"}):
		return []Attack{CombineAttacks(Attacks)}, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(Attacks, func(a Attack) bool { return a.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no attack %q; atoll-lab attack list shows them", name)
		}
		chosen = append(chosen, Attacks[i])
	}
	return chosen, nil
}

// String returns one line about the result.
func (r Result) String() string {
	verdict := "held  "
	if r.Broken != nil {
		verdict = "BROKEN"
	}
	line := fmt.Sprintf("%s %-20s p99 %4.0f ms, memory %4.0f -> %4.0f MiB: %s", verdict, r.Attack.Name, 1000*r.Latency, r.Before/(1<<20), r.Peak/(1<<20), escapeAndCutLine(r.Answer))
	if r.Broken != nil {
		line += "\n       " + escapeAndCutLine(r.Broken.Error())
	}
	return line
}

// longestLine is the length in bytes at which printed answers are cut.
const longestLine = 300

// escapeAndCutLine escapes a text that a hub or a peer wrote, and cuts it.
func escapeAndCutLine(text string) string {
	if text = phrase.EscapeLine(text); len(text) > longestLine {
		return text[:longestLine] + "…"
	}
	return text
}
