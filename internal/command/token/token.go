// Package token holds the commands `atoll token create|list|delete`: the first step
// of every join.
//
// Contract: a token's secret is printed once, by create, and nowhere else; the hub
// keeps a hash.
package token

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// Invitation is all that a member's administrator needs to join.
type Invitation struct {
	Token  string `json:"token"`
	Hub    string `json:"hub"`
	CAHash string `json:"caHash"`
}

// hubInfo is the ConfigMap in which the hub publishes where agents dial.
const hubInfo = "hub-info"

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and take back the tokens by which clusters join",
	}
	cmd.AddCommand(newTokenCreateCommand(flags), newTokenListCommand(flags), newTokenDeleteCommand(flags))
	return cmd
}

func newTokenCreateCommand(flags *client.ConnectionFlags) *cobra.Command {
	var spec handshake.TokenSpec
	var format output.Format
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a token by which clusters may request to join",
		Long: `Make a token by which clusters may request to join, and print what the member's
administrator has to do with it. The token is shown this once.

Such a cluster waits for "atoll accept" on the hub, unless --auto-accept is
set. An auto-accepted cluster carries the taint atoll.dev/unreviewed, which
keeps work away, unless the token names its --set.

Clusters hold a stream to the hub and get changes within seconds. With
--check-in they dial every so often instead, which lets one hub serve many more.`,
		Example: `  atoll token create
  atoll token create --ttl 1h --uses 200 --name-pattern 'shop-*' --labels env=prod --set shops --auto-accept`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := spec.Validate(); err != nil {
				return err
			}
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			made, err := createToken(cmd.Context(), c, spec)
			if err != nil {
				return err
			}
			if done, err := format.PrintStructured(cmd.OutOrStdout(), made); done {
				return err
			}
			if format.IsFormat("raw") {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), made.Token)
				return err
			}
			return printInvitation(cmd.OutOrStdout(), made, spec)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&spec.Lifetime, "ttl", 24*time.Hour, "how long the token may be used")
	f.IntVar(&spec.Uses, "uses", 1, "how many clusters may join by it")
	f.StringVar(&spec.NamePattern, "name-pattern", "", "pattern of names that clusters may take, such as 'shop-*' (default: any)")
	f.StringToStringVar(&spec.Labels, "labels", nil, "labels that the clusters get, such as env=prod,tier=edge")
	f.StringVar(&spec.Set, "set", "", "set that the clusters belong to, as the label "+handshake.LabelSet)
	f.DurationVar(&spec.CheckIn, "check-in", 0, "how often the clusters check in, from 10s to 24h, instead of holding a stream")
	f.BoolVar(&spec.AutoAccept, "auto-accept", false, "let clusters in without atoll accept")
	format.AddTo(f, "raw", "json", "yaml")
	return cmd
}

func createToken(ctx context.Context, c *client.Connection, spec handshake.TokenSpec) (Invitation, error) {
	info, err := waitForHubInfo(ctx, c)
	if err != nil {
		return Invitation{}, err
	}
	made := Invitation{Hub: info.Data["gateway"], CAHash: info.Data["caHash"]}
	if made.Hub == "" || !trust.IsValidKeyHash(made.CAHash) {
		return Invitation{}, fmt.Errorf("ConfigMap %s/%s on the hub lacks gateway or caHash: restart the hub, which writes them", atoll.SystemNamespace, hubInfo)
	}
	t, err := handshake.Admin{Hub: c.Dynamic}.CreateToken(ctx, spec, time.Now())
	if err != nil {
		return Invitation{}, c.ExplainError(err)
	}
	made.Token = t.RevealSecret()
	return made, nil
}

// A hub that is starting up gets startTime to publish where agents dial, once it serves
// Atoll's kinds; what does not even do that gets less.
const (
	startTime   = time.Minute
	strangeTime = 3 * time.Second
)

func waitForHubInfo(ctx context.Context, c *client.Connection) (info *corev1.ConfigMap, err error) {
	begin := time.Now()
	limit := strangeTime
	for {
		info, err = client.Get[corev1.ConfigMap](ctx, c, client.ConfigMaps, atoll.SystemNamespace, hubInfo)
		if !apierrors.IsNotFound(err) {
			return info, err
		}
		if c.REST.Get().AbsPath("/apis", v1alpha1.GroupVersion.String()).Do(ctx).Error() == nil {
			limit = startTime
		}
		if time.Since(begin) > limit {
			return nil, fmt.Errorf("%s is no hub, or does not start up: it has no ConfigMap %s/%s, where a hub publishes how agents reach it", c.Config.Host, atoll.SystemNamespace, hubInfo)
		}
		if !pause.WaitFor(ctx, 200*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

func printInvitation(out io.Writer, made Invitation, spec handshake.TokenSpec) error {
	next := "Then, on the hub:\n\n  atoll accept NAME\n"
	if spec.AutoAccept {
		next = "The cluster is let in without further ado.\n"
	}
	uses := "1 cluster"
	if spec.Uses > 1 {
		uses = strconv.Itoa(spec.Uses) + " clusters"
	}
	_, err := fmt.Fprintf(out, `Token for %s, good for %s. It is shown only now:

  %s

In the cluster that is to join, with its administrator's kubeconfig:

  echo %[3]s | atoll join NAME --kubeconfig MEMBER.kubeconfig \
    --hub %[4]s \
    --ca-hash %[5]s \
    --token-file -

%[6]s`, uses, spec.Lifetime, made.Token, made.Hub, made.CAHash, next)
	return err
}

func newTokenListCommand(flags *client.ConnectionFlags) *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the tokens of the hub",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			tokens, err := handshake.Admin{Hub: c.Dynamic}.ListTokens(cmd.Context())
			if err != nil {
				return c.ExplainError(err)
			}
			shown := make([]listed, len(tokens))
			for i, t := range tokens {
				shown[i] = listed{t.ID, t.Expires, t.UsesLeft, t.Pattern, t.Labels, t.Set, t.AutoAccept, formatLifetime(t.CheckIn)}
			}
			if done, err := format.PrintStructured(cmd.OutOrStdout(), shown); done {
				return err
			}
			return printTokens(cmd.OutOrStdout(), shown, time.Now())
		},
	}
	format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

// listed is a token without the hash of its secret.
type listed struct {
	ID          string            `json:"id"`
	Expires     time.Time         `json:"expires"`
	UsesLeft    int               `json:"usesLeft"`
	NamePattern string            `json:"namePattern,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Set         string            `json:"set,omitempty"`
	AutoAccept  bool              `json:"autoAccept,omitempty"`
	// CheckIn is how often the clusters check in, such as "15m".
	CheckIn string `json:"checkIn,omitempty"`
}

func formatLifetime(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return phrase.FormatDuration(d)
}

func printTokens(out io.Writer, tokens []listed, now time.Time) error {
	if len(tokens) == 0 {
		_, err := fmt.Fprintln(out, "no tokens; `atoll token create` makes one")
		return err
	}
	table := output.NewTable(out, "ID", "EXPIRES", "USES LEFT", "NAMES", "SET", "AUTO-ACCEPT", "CHECK-IN")
	for _, t := range tokens {
		expires := "expired"
		if t.Expires.After(now) {
			expires = "in " + output.FormatAge(t.Expires, now)
		}
		table.AddRow(t.ID, expires, strconv.Itoa(t.UsesLeft), t.NamePattern, t.Set, output.YesNo(t.AutoAccept), t.CheckIn)
	}
	return table.Flush()
}

func newTokenDeleteCommand(flags *client.ConnectionFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "delete ID...",
		Short: "Take tokens back; clusters that joined by them stay",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			for _, id := range ids {
				if t, err := trust.ParseToken(id); err == nil {
					id = t.ID
				}
				err := handshake.Admin{Hub: c.Dynamic}.DeleteToken(cmd.Context(), id)
				if apierrors.IsNotFound(err) {
					return fmt.Errorf("the hub has no token %q; `atoll token list` shows them", id)
				}
				if err != nil {
					return c.ExplainError(err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "token %s deleted\n", id)
			}
			return nil
		},
	}
}
