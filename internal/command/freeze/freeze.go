// Package freeze is the commands `atoll freeze` and `atoll unfreeze`, which stop all changes and let them go on.
//
// Contract: without a reason, freeze writes nothing and shows the freeze that there is. Otherwise the commands write one field of
// the HubSettings and nothing else, and the hub adds the user and the time.
package freeze

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/phrase"
)

var hubSettings = v1alpha1.GroupVersion.WithResource("hubsettings")

// NewCommand makes the command that freezes.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	var until string
	cmd := &cobra.Command{
		Use:   "freeze [REASON] [--until TIME]",
		Short: "Stop all changes of what runs, in all clusters",
		Long: `Stop all changes of what runs, in all clusters, until atoll unfreeze.

What runs goes on, changes that have started too, and failover moves workloads as always. People
go on to write templates and policies. You need the verb freeze on hubsettings, and the right to
patch them. Without a reason the command shows the freeze that there is.`,
		Example: `  atoll freeze "incident 4711"
  atoll freeze "end of the year" --until 2027-01-03T06:00:00Z
  atoll freeze "until we know more" --until 4h
  atoll freeze`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if until != "" {
					return fmt.Errorf("--until needs a reason: atoll freeze REASON --until %s", until)
				}
				return showFreeze(cmd, flags)
			}
			freeze := map[string]any{"reason": args[0], "until": nil}
			if until != "" {
				at, err := parseEnd(until, time.Now())
				if err != nil {
					return err
				}
				freeze["until"] = at.UTC().Format(time.RFC3339)
			}
			return writeFreeze(cmd, flags, freeze, "all changes are frozen; let them go on with: atoll unfreeze")
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "end the freeze at this time, RFC 3339, or after this duration")
	return cmd
}

// NewUnfreezeCommand makes the command that lifts a freeze.
func NewUnfreezeCommand(flags *client.ConnectionFlags) *cobra.Command {
	return &cobra.Command{
		Use: "unfreeze", Short: "Let changes go on that a freeze holds", Args: cobra.NoArgs,
		Long: `Let changes go on that a freeze holds.

Each application goes on within its own rollout. You need the verb freeze on hubsettings, and the
right to patch them.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeFreeze(cmd, flags, nil, "no freeze holds changes any more")
		},
	}
}

// parseEnd returns the end of a freeze.
func parseEnd(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("--until must be a duration such as 4h, or a time such as %s", now.UTC().Add(4*time.Hour).Format(time.RFC3339))
	}
	return at, nil
}

// writeFreeze writes the freeze, or removes it where it is nil. Without HubSettings it makes them.
func writeFreeze(cmd *cobra.Command, flags *client.ConnectionFlags, freeze map[string]any, done string) error {
	c, err := flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	var value any
	if freeze != nil {
		value = freeze
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"freeze": value}})
	if err != nil {
		return err
	}
	_, err = c.Dynamic.Resource(hubSettings).Patch(cmd.Context(), v1alpha1.HubSettingsName, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: atoll.CLIFieldManager})
	if apierrors.IsNotFound(err) && freeze != nil {
		err = createSettings(cmd.Context(), c, freeze)
	}
	if err != nil && !(apierrors.IsNotFound(err) && freeze == nil) {
		return c.ExplainError(err)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
	return err
}

func createSettings(ctx context.Context, c *client.Connection, freeze map[string]any) error {
	if freeze["until"] == nil {
		delete(freeze, "until")
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "HubSettings", "metadata": map[string]any{"name": v1alpha1.HubSettingsName}, "spec": map[string]any{"freeze": freeze},
	}}
	_, err := c.Dynamic.Resource(hubSettings).Create(ctx, obj, metav1.CreateOptions{FieldManager: atoll.CLIFieldManager})
	return err
}

// showFreeze prints the freeze that there is.
func showFreeze(cmd *cobra.Command, flags *client.ConnectionFlags) error {
	c, err := flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	u, err := c.Dynamic.Resource(hubSettings).Get(cmd.Context(), v1alpha1.HubSettingsName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return c.ExplainError(err)
	}
	var settings v1alpha1.HubSettings
	if err == nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &settings); err != nil {
			return fmt.Errorf("read the HubSettings: %w", err)
		}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), describeFreeze(settings.Spec.Freeze, time.Now()))
	return err
}

// describeFreeze returns the line for people.
func describeFreeze(f *v1alpha1.ChangeFreeze, now time.Time) string {
	if !f.IsActive(now) {
		return "no freeze holds changes"
	}
	text := phrase.EscapeLine(f.By) + " froze all changes at " + phrase.FormatTime(f.Since.Time) + " (" + phrase.EscapeLine(f.Reason) + ")"
	if f.Until != nil {
		text += ", until " + phrase.FormatTime(f.Until.Time)
	}
	return text
}
