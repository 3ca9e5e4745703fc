package interpret

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/kinds/script"
)

type convertOptions struct{ file, kind string }

// NewConvertCommand returns the command that converts interpreters of other systems.
func NewConvertCommand() *cobra.Command {
	o := &convertOptions{}
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Convert interpreters of Karmada or Argo CD to ResourceInterpreters",
		Long: `Convert interpreters of Karmada or Argo CD to ResourceInterpreters.

The file holds Karmada's ResourceInterpreterCustomizations, a ConfigMap with Argo CD's health
scripts, or one health script, whose kind is --kind. The scripts are unchanged. A script that
does not compile is an error with line and column, and nothing is printed.`,
		Example: `  atoll interpret convert -f customization.yaml | kubectl apply -f -
  atoll interpret convert -f health.lua --kind flink.apache.org/v1beta1/FlinkDeployment`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "file to convert; - for standard input")
	cmd.Flags().StringVar(&o.kind, "kind", "", "APIVERSION/KIND of a health script")
	if err := cmd.MarkFlagRequired("filename"); err != nil {
		panic(fmt.Sprintf("interpret: the flag is there: %v", err))
	}
	return cmd
}

func (o *convertOptions) run(in io.Reader, out io.Writer) error {
	text, err := readContent(o.file, in)
	if err != nil {
		return err
	}
	kind, err := parseKind(o.kind)
	if err != nil {
		return err
	}
	list, err := script.ConvertFile(o.file, text, kind)
	if err != nil {
		return err
	}
	for i, r := range list {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
		doc, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		if i > 0 {
			doc = append([]byte("---\n"), doc...)
		}
		if _, err := out.Write(doc); err != nil {
			return err
		}
	}
	return nil
}

// parseKind returns nil where there is no text.
func parseKind(text string) (*schema.GroupVersionKind, error) {
	if text == "" {
		return nil, nil
	}
	i := strings.LastIndex(text, "/")
	gv, err := schema.ParseGroupVersion(text[:max(i, 0)])
	if i < 0 || err != nil || gv.Version == "" || text[i+1:] == "" {
		return nil, fmt.Errorf("--kind %s: give APIVERSION/KIND, such as apps/v1/Deployment or v1/Pod", text)
	}
	gvk := gv.WithKind(text[i+1:])
	return &gvk, nil
}
