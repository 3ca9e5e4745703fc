package atoll

import "atoll.dev/atoll/api/v1alpha1"

// ProxyPaths is what the paths of all clusters begin with, where the hub serves their APIs.
var ProxyPaths = "/apis/" + v1alpha1.GroupVersion.String() + "/clusters/"

// ProxyPath is that of one cluster, without a slash at its end.
func ProxyPath(cluster string) string { return ProxyPaths + cluster + "/proxy" }

// LiveHost is the host name under which a hub asks an agent in its own name for what runs
// of what is placed. People's requests have the cluster's UID there, whatever they say.
const LiveHost = "live.atoll.dev"
