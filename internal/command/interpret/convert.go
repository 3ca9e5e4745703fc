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

	"atoll.dev/atoll/internal/interpret/script"
)

type convertOptions struct{ file, kind string }

// NewConvertCommand makes the command that turns others' interpreters into Atoll's.
func NewConvertCommand() *cobra.Command {
	o := &convertOptions{}
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Make ResourceInterpreters of what was written for Karmada or Argo CD",
		Long: `Make ResourceInterpreters of what was written for Karmada or Argo CD.

The file holds Karmada's ResourceInterpreterCustomizations, a ConfigMap with Argo CD's health
scripts, or one health script, of which --kind says what it is about. The scripts stay as they
are. What does not compile is told with line and column, and nothing is printed.`,
		Example: `  atoll interpret convert -f customization.yaml | kubectl apply -f -
  atoll interpret convert -f health.lua --kind flink.apache.org/v1beta1/FlinkDeployment`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "file to convert; - for standard input")
	cmd.Flags().StringVar(&o.kind, "kind", "", "APIVERSION/KIND that a health script is about")
	if err := cmd.MarkFlagRequired("filename"); err != nil {
		panic(fmt.Sprintf("interpret: the flag is there: %v", err))
	}
	return cmd
}

func (o *convertOptions) run(in io.Reader, out io.Writer) error {
	text, err := content(o.file, in)
	if err != nil {
		return err
	}
	var kind *schema.GroupVersionKind
	if o.kind != "" {
		i := strings.LastIndex(o.kind, "/")
		gv, err := schema.ParseGroupVersion(o.kind[:max(i, 0)])
		if i < 0 || err != nil || gv.Version == "" || o.kind[i+1:] == "" {
			return fmt.Errorf("--kind %s: give APIVERSION/KIND, such as apps/v1/Deployment or v1/Pod", o.kind)
		}
		gvk := gv.WithKind(o.kind[i+1:])
		kind = &gvk
	}
	list, err := script.Lower(o.file, text, kind)
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
