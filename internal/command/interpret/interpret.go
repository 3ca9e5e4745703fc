// Package interpret is the command `atoll interpret`: what Atoll makes of an object of any
// kind, by itself or by an interpreter that users wrote, and whether such interpreters say
// what they should.
//
// Contract: no cluster is asked and nothing is written; what answers is what hubs and
// agents ask. Equal files give equal output, byte for byte.
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
	"atoll.dev/atoll/internal/interpret"
	"atoll.dev/atoll/internal/interpret/script"
)

type options struct {
	files, observed files.Names
	items, with     string
	op              string
	replicas        int64
	revise          bool
	divided         bool
	format          output.Format
}

// NewCommand makes the command.
func NewCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "interpret -f FILE",
		Short: "Tell what Atoll makes of an object: replicas, pods, health, status, dependencies",
		Long: `Tell what Atoll makes of an object: replicas, pods, health, status, dependencies.

The functions answer by which hubs and agents divide, judge and sum up objects. No cluster
is asked. The file holds one object, and may hold the HorizontalPodAutoscalers that scale it.

Without --op everything is told that the kind has and that the files allow:

  replicas      that it states
  requirements  of each pod, where all are alike
  components    with their pods, where they are not
  revised       the object with --replicas
  retained      the object as it is once applied over --observed
  health        of --observed, or of the object itself where it has a status
  status        what of that object's status the hub hears of
  aggregated    the status that the template gets of the clusters in --items
  dependencies  that go along with it

With --with it is told as by a hub that has the interpreters of that file, and by its agents:
each question goes to the interpreter that they would ask, what none answers is answered as
without them, and a script that fails does what it would do there. They are
ResourceInterpreters, ResourceInterpreterCustomizations of Karmada's, a ConfigMap with Argo
CD's health scripts, or one such script.

Beside these there are finished, of kinds that run to completion, and immutable, the fields
that the member would refuse to change from what --observed has.`,
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
	f.StringVar(&o.items, "items", "", "what clusters say: a list of {cluster, status}, and as need be health, replicas, away, stale")
	f.StringVar(&o.with, "with", "", "interpreters that answer as on a hub that has them: YAML, or a health script that ends in .lua")
	f.StringVar(&o.op, "op", "", "tell this alone: "+strings.Join(questions, ", "))
	f.Int64Var(&o.replicas, "replicas", 0, "revise the object to so many replicas")
	f.BoolVar(&o.divided, "divided", false, "the clusters in --items share the replicas, so that their counts are summed up (default: each has all, and the least finished one counts)")
	o.format.AddTo(f, "json", "yaml")
	cmd.AddCommand(NewTestCommand(), NewConvertCommand())
	return cmd
}

// questions that --op asks, by the keys of the answers.
var questions = []string{
	"replicas", "requirements", "components", "revised", "retained", "health", "finished",
	"status", "aggregated", "dependencies", "immutable",
}

func (o *options) run(ctx context.Context, in io.Reader, out io.Writer) error {
	asked, err := o.asked()
	if err != nil {
		return err
	}
	q := question{divided: o.divided, asked: asked, one: o.op != ""}
	if o.revise {
		q.replicas = &o.replicas
	}
	objects, err := o.files.Read(ctx, in)
	if err != nil {
		return err
	}
	if q.object, q.scaled, err = chosen(objects); err != nil {
		return err
	}
	if o.observed.Given() {
		live, err := o.observed.Read(ctx, in)
		if err != nil {
			return fmt.Errorf("--observed: %w", err)
		}
		if q.observed, err = counterpart(live, q.object); err != nil {
			return err
		}
	}
	if o.items != "" {
		if q.items, err = readItems(o.items, in); err != nil {
			return fmt.Errorf("--items: %w", err)
		}
	}
	if o.with != "" {
		if q.known, err = interpreters(o.with, q.object); err != nil {
			return fmt.Errorf("--with %s: %w", o.with, err)
		}
	}
	a, err := q.answer()
	if err != nil {
		return err
	}
	if done, err := o.format.Structured(out, a); done || err != nil {
		return err
	}
	return a.write(out, q.object)
}

// asked questions, by key; an error where one lacks what it needs.
func (o *options) asked() (map[string]bool, error) {
	keys := questions
	if op := strings.ToLower(o.op); slices.Contains(questions, op) {
		keys = []string{op}
	} else if op != "" {
		karmada, err := script.Question(op) // whose names are understood as well
		if err != nil {
			return nil, fmt.Errorf("--op %s: there are %s", o.op, strings.Join(questions, ", "))
		}
		if keys = []string{karmada}; karmada == "replicas" {
			keys = append(keys, "requirements")
		}
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
	case (out["retained"] || out["immutable"]) && !o.observed.Given():
		return nil, fmt.Errorf("--op %s needs --observed: the object as a member has it", o.op)
	case out["aggregated"] && o.items == "":
		return nil, fmt.Errorf("--op %s needs --items: what clusters say of the object", o.op)
	}
	return out, nil
}

// chosen is the object that is asked about, and whether one of the others scales it.
func chosen(objects []*unstructured.Unstructured) (obj *unstructured.Unstructured, scaled bool, err error) {
	var autoscalers []*unstructured.Unstructured
	for _, o := range objects {
		_, _, scales := interpret.Scaled(o)
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
		gk, name, _ := interpret.Scaled(a)
		scaled = scaled || gk == obj.GroupVersionKind().GroupKind() && name == obj.GetName() && a.GetNamespace() == obj.GetNamespace()
	}
	return obj, scaled, nil
}

// counterpart of the object as a member has it.
func counterpart(live []*unstructured.Unstructured, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if len(live) != 1 {
		return nil, errors.New("--observed: give one object")
	}
	if have, want := live[0].GroupVersionKind().GroupKind(), obj.GroupVersionKind().GroupKind(); have != want {
		return nil, fmt.Errorf("--observed is a %s, and the object a %s", have, want)
	}
	return live[0], nil
}
