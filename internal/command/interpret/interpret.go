// Package interpret is the command `atoll interpret`. It shows what Atoll reads in an object of any
// kind, by itself or by the interpreters of users, and tests such interpreters.
//
// Contract: the command contacts no cluster and writes nothing. It calls the functions that hubs
// and agents call. It fetches an OCI artifact if a flag names one. Equal files give equal output,
// byte for byte.
package interpret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/command/files"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/kinds/script"
)

type interpretOptions struct {
	files, observed files.FileFlags
	items, with     string
	op              string
	replicas        int64
	revise          bool
	divided         bool
	format          output.Format
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	o := &interpretOptions{files: files.FileFlags{AllowUnnamed: true}, observed: files.FileFlags{AllowUnnamed: true}}
	cmd := &cobra.Command{
		Use:   "interpret -f FILE",
		Short: "Show what Atoll reads in an object: replicas, pods, health, status, dependencies",
		Long: `Show what Atoll reads in an object: replicas, pods, health, status, dependencies.

Hubs and agents use the same functions to divide, judge and aggregate objects. The command
contacts no cluster. The file holds one object, and optionally the HorizontalPodAutoscalers
that scale it. The object needs no metadata.name.

Without --op the output has every answer that the kind and the files allow:

  replicas      that the object states
  requirements  of each pod, where all pods are equal
  components    with their pods, where they are not
  revised       the object with --replicas
  retained      the object after an apply over --observed
  health        of --observed, or of the object itself where it has a status
  status        the part of that object's status that the hub gets
  aggregated    the status of the template from the clusters in --items
  dependencies  that are placed with the object

With --with the answers are those of a hub with the interpreters of that file, and of its
agents. Each question goes to the interpreter that they would use. Questions without an
interpreter are answered as without --with, and a script that fails has the same effect as
there. The file holds ResourceInterpreters, ResourceInterpreterCustomizations of Karmada, a
ConfigMap with Argo CD's health scripts, or one such script. A directory or an OCI artifact
with such files is read as by "atoll interpret convert".

Further answers are finished, for kinds that run to completion, and immutable: the fields that
differ from --observed and that the member would refuse to change.`,
		Example: `  atoll interpret -f rollout.yaml
  atoll interpret -f web.yaml --observed live.yaml --op health -o json
  atoll interpret -f web.yaml --items clusters.yaml --divided --op aggregated
  atoll interpret -f thing.yaml --with interpreter.yaml
  atoll interpret test interpreters/`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.revise = cmd.Flags().Changed("replicas")
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	o.files.AddTo(f)
	o.observed.AddAs(f, "observed", "the object as a member has it")
	f.StringVar(&o.items, "items", "", "reports of clusters: a list of {cluster, status}, and as need be health, replicas, away, stale")
	f.StringVar(&o.with, "with", "", "interpreters that answer as on a hub: a YAML file, a health script that ends in .lua, a directory, or oci://REGISTRY/REPOSITORY:TAG")
	f.StringVar(&o.op, "op", "", "show this answer alone: "+strings.Join(questions, ", "))
	f.Int64Var(&o.replicas, "replicas", 0, "revise the object to this number of replicas")
	f.BoolVar(&o.divided, "divided", false, "the clusters in --items share the replicas, so that their counts are summed up (default: each has all, and the least finished one counts)")
	o.format.AddTo(f, "json", "yaml")
	cmd.AddCommand(NewTestCommand(), NewConvertCommand())
	return cmd
}

// questions are the values of --op, which are the keys of the answers.
var questions = []string{
	"replicas", "requirements", "components", "revised", "retained", "health", "finished",
	"status", "aggregated", "dependencies", "immutable",
}

func (o *interpretOptions) run(ctx context.Context, in io.Reader, out io.Writer) error {
	asked, err := o.selectQuestions()
	if err != nil {
		return err
	}
	q := objectQuery{divided: o.divided, askedKeys: asked, singleQuestion: o.op != ""}
	if o.revise {
		q.replicas = &o.replicas
	}
	if err := o.readInputs(ctx, in, &q); err != nil {
		return err
	}
	a, err := q.answerAll()
	if err != nil {
		return err
	}
	if done, err := o.format.PrintStructured(out, a); done || err != nil {
		return err
	}
	return a.write(out, q.object)
}

// readInputs reads the files of all flags into the query.
func (o *interpretOptions) readInputs(ctx context.Context, in io.Reader, q *objectQuery) error {
	objects, err := o.files.Read(ctx, in)
	if err != nil {
		return err
	}
	if q.object, q.autoscaled, err = separateObjectFromAutoscalers(objects); err != nil {
		return err
	}
	if o.observed.HasNames() {
		live, err := o.observed.Read(ctx, in)
		if err != nil {
			return fmt.Errorf("--observed: %w", err)
		}
		if q.observed, err = checkObservedObject(live, q.object); err != nil {
			return err
		}
	}
	if o.items != "" {
		if q.items, err = readItems(o.items, in); err != nil {
			return fmt.Errorf("--items: %w", err)
		}
	}
	if o.with != "" {
		if q.interpreters, err = readInterpretersFor(ctx, o.with, q.object); err != nil {
			return fmt.Errorf("--with %s: %w", o.with, err)
		}
	}
	return nil
}

// selectQuestions returns the keys of the answers. It returns an error where the input of one is
// missing.
func (o *interpretOptions) selectQuestions() (map[string]bool, error) {
	keys, err := o.questionKeys()
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, k := range keys {
		out[k] = true
	}
	switch {
	case o.op == "":
		return out, nil
	case out["revised"] && !o.revise:
		return nil, fmt.Errorf("--op %s needs --replicas", o.op)
	case (out["retained"] || out["immutable"]) && !o.observed.HasNames():
		return nil, fmt.Errorf("--op %s needs --observed: the object as a member has it", o.op)
	case out["aggregated"] && o.items == "":
		return nil, fmt.Errorf("--op %s needs --items: the reports of clusters about the object", o.op)
	}
	return out, nil
}

// questionKeys returns the keys that --op selects. Karmada's names are accepted.
func (o *interpretOptions) questionKeys() ([]string, error) {
	keys := questions
	if op := strings.ToLower(o.op); slices.Contains(questions, op) {
		keys = []string{op}
	} else if op != "" {
		karmada, err := script.ParseQuestion(op)
		if err != nil {
			return nil, fmt.Errorf("--op %s: there are %s", o.op, strings.Join(questions, ", "))
		}
		if keys = []string{karmada}; karmada == "replicas" {
			keys = append(keys, "requirements")
		}
	}
	return keys, nil
}

// separateObjectFromAutoscalers returns the object of the query, and whether one of the other objects scales it.
func separateObjectFromAutoscalers(objects []*unstructured.Unstructured) (obj *unstructured.Unstructured, scaled bool, err error) {
	var autoscalers []*unstructured.Unstructured
	for _, o := range objects {
		_, _, scales := kinds.AutoscalerTarget(o)
		switch {
		case scales && len(objects) > 1:
			autoscalers = append(autoscalers, o)
		case obj != nil:
			return nil, false, errors.New("the files hold several objects: give one at a time, with the HorizontalPodAutoscalers that scale it")
		default:
			obj = o
		}
	}
	if obj == nil {
		return nil, false, errors.New("the files hold nothing but HorizontalPodAutoscalers: give one at a time, or what they scale too")
	}
	for _, a := range autoscalers {
		gk, name, _ := kinds.AutoscalerTarget(a)
		scaled = scaled || gk == obj.GroupVersionKind().GroupKind() && name == obj.GetName() && a.GetNamespace() == obj.GetNamespace()
	}
	return obj, scaled, nil
}

// checkObservedObject returns the object as the member has it. It must be of the same kind.
func checkObservedObject(live []*unstructured.Unstructured, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if len(live) != 1 {
		return nil, errors.New("--observed: give one object")
	}
	if have, want := live[0].GroupVersionKind().GroupKind(), obj.GroupVersionKind().GroupKind(); have != want {
		return nil, fmt.Errorf("--observed is a %s, and the object a %s", have, want)
	}
	return live[0], nil
}
