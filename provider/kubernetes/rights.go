package kubernetes

// Rights is the rule of a Role with what the provider needs in its namespace, as YAML. It needs nothing in the cluster.
const Rights = `rules:
- apiGroups: [""]
  resources: [pods]
  verbs: [create, get, list, watch, delete, patch]
- apiGroups: [""]
  resources: [pods/attach, pods/exec]
  verbs: [create, get]
`
