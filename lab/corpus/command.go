package corpus

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spf13/cobra"
)

// NewCommand returns the command `atoll-lab corpus`.
func NewCommand() *cobra.Command {
	var o corpusOptions
	var only, output string
	var quiet bool
	cmd := &cobra.Command{
		Use:   "corpus DIR",
		Short: "Apply each manifest of a directory to a hub and to a plain cluster, and report the differences",
		Long: `Apply each manifest of a directory to a hub whose default placement is All, and to a
control: a cluster that is no member of the hub. A user is to see no difference, so
each manifest is compared by five questions:

  accepted  does kubectl print the same when it applies and deletes the manifest?
  objects   do all members hold the content that the control holds?
  status    has each object on the hub the conditions and counts that it has in the control?
  answers   does kubectl get print the same of the hub?
  clean     is the same left after kubectl delete: in members, and nothing on the hub?

A manifest is a YAML file, a directory of YAML files, a kustomization, or a chart, for
which bin/helm is needed ("make helm"). A comment in the first five lines of a file
chooses the command:

  # corpus: apply          kubectl apply (the default)
  # corpus: server-side    kubectl apply --server-side
  # corpus: create         kubectl create, for metadata.generateName

DIR/differences.yaml lists expected differences, each with a reason. In manifest, object
and path, * stands for any text. An entry that no longer occurs is reported, too.

  - {manifest: tokens, object: Secret default/token, path: object, reason: the hub issues no tokens for members}

The exit code is 1 if a difference is not in the list, and if an entry no longer occurs.`,
		Example: `  atoll-lab corpus lab/test/corpus/testdata --only 'jobs|cronjobs'
  atoll-lab corpus my-charts --dir /tmp/lab -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if output != "" && output != "json" {
				return fmt.Errorf("-o %s is unknown; use -o json, or leave it out for a table", output)
			}
			if o.timeout < time.Second {
				return fmt.Errorf("--timeout is %s: use 1s or more", o.timeout)
			}
			if only != "" {
				if o.only, err = regexp.Compile(only); err != nil {
					return fmt.Errorf("--only: %w", err)
				}
			}
			o.corpus, o.progress = args[0], cmd.ErrOrStderr()
			if quiet {
				o.progress = io.Discard
			}
			report, runErr := o.run(cmd.Context())
			if report == nil {
				return runErr
			}
			write := report.writeTable
			if output == "json" {
				write = report.writeJSON
			}
			if err := write(cmd.OutOrStdout()); err != nil {
				return err
			}
			return errors.Join(runErr, report.failureError())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.lab, "dir", "", "directory of a running lab with a hub (default: a lab of its own with two members, which is removed at the end)")
	flags.StringVar(&only, "only", "", "regular expression of the names of manifests to run")
	flags.DurationVar(&o.timeout, "timeout", 2*time.Minute, "longest time of one manifest")
	flags.StringVarP(&output, "output", "o", "", "json for a machine-readable form")
	flags.BoolVarP(&quiet, "quiet", "q", false, "print no progress")
	return cmd
}
