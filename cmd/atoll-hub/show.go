package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/apiserver/keys"
)

// The content of a hub's data directory, for administrators that cannot copy files out of it: its
// image has no shell and no tar.

func newPrintKubeconfigCommand() *cobra.Command {
	var dir, server string
	cmd := &cobra.Command{
		Use: "kubeconfig --data-dir DIR [--server https://HOST:PORT]", Short: "Print DIR/hub.kubeconfig, the administrator's", Args: cobra.NoArgs,
		Long: `Print DIR/hub.kubeconfig, the administrator's credentials, which the hub has written, with the
address by which it is reached from where they are used.

  kubectl exec -n atoll atoll-hub-0 -- atoll-hub kubeconfig --data-dir /var/lib/atoll/hub > hub.kubeconfig
  kubectl port-forward -n atoll svc/atoll-hub 6443`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := clientcmd.LoadFromFile(filepath.Join(dir, "hub.kubeconfig"))
			if err != nil {
				return fmt.Errorf("read what the hub writes when it starts: %w", err)
			}
			for _, cluster := range config.Clusters {
				if server != "" {
					cluster.Server = server
				}
			}
			content, err := clientcmd.Write(*config)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(content)
			return err
		},
	}
	addDataDirFlag(cmd, &dir)
	cmd.Flags().StringVar(&server, "server", "", "https://HOST:PORT of the hub's API (default: as in the file, which is for the machine, or the pod, of the hub)")
	return cmd
}

func newPrintKeysCommand() *cobra.Command {
	var dir, name, namespace string
	cmd := &cobra.Command{
		Use: "keys --data-dir DIR [--name NAME]", Short: "Print the hub's key set as the manifest of a Secret", Args: cobra.NoArgs,
		Long: `Print the hub's key set as the manifest of a Secret, for --keys-dir of other hubs on the same etcd,
as keys.existingSecret of the chart. A holder of the key set can act as the hub.

  kubectl exec -n atoll atoll-hub-0 -- atoll-hub keys --data-dir /var/lib/atoll/hub | kubectl apply -n atoll -f -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir := filepath.Join(dir, "keys")
			if _, err := keys.LoadOrCreate(dir, false); err != nil {
				return err
			}
			secret := corev1.Secret{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
				Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{},
			}
			for _, file := range keys.KeyFiles() {
				content, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil {
					return err
				}
				secret.Data[file] = content
			}
			content, err := yaml.Marshal(secret)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(content)
			return err
		},
	}
	addDataDirFlag(cmd, &dir)
	cmd.Flags().StringVar(&name, "name", "hub-keys", "name of the Secret")
	cmd.Flags().StringVar(&namespace, "namespace", "", "its namespace (default: none)")
	return cmd
}

// addDataDirFlag adds the flag that all commands need.
func addDataDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "data-dir", "", "the hub's data directory (required)")
	if err := cmd.MarkFlagRequired("data-dir"); err != nil {
		panic(err)
	}
}
