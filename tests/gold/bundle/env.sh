# Environment variables of this bundle. Read them with `. ./env.sh` in this folder; in bash and zsh, from anywhere.
# `autotune launch` sets them by itself.
_bundle=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE:-$0}")" && pwd)
if [ -f "$_bundle/mem_opt.json" ]; then
    export OMP_NUM_THREADS='16'
    export PYTORCH_ALLOC_CONF='expandable_segments:True'
    export ORTMODULE_MEMORY_OPT_CONFIG="$_bundle/mem_opt.json"
    export ORTMODULE_MEMORY_OPT_LEVEL='0'
else
    echo "env.sh: mem_opt.json is not in '$_bundle': go to the bundle's folder and read env.sh there" >&2
fi
unset _bundle
