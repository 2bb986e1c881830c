#!/bin/sh
# Pack a folder that install.sh made for `spark.archives`: with its Python, so that executors need
# only the C library of the same kind of Linux. The folder is not a virtual environment any more.
#
#   conf/deploy/pack.sh FOLDER ARCHIVE.tar.gz
set -eu
folder=$1 archive=$2
ask() { "$folder/bin/python3" -c "import os, sys, sysconfig; print($1)"; }

version=$(ask 'f"{sys.version_info[0]}.{sys.version_info[1]}"')
library=$(ask 'os.path.join(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))')
standard=$(ask 'sysconfig.get_path("stdlib")')
packages=$folder/lib/python$version

tar -C "$standard" -cf - --exclude=./site-packages --exclude=./dist-packages --exclude=./test \
  --exclude=./ensurepip --exclude=./idlelib --exclude=./tkinter --exclude=./EXTERNALLY-MANAGED \
  --exclude=./config-* . | tar -C "$packages" -xf -
ln -sfn site-packages "$packages/dist-packages" # where Debian's Python looks
rm "$folder/pyvenv.cfg"                         # it names the Python that was copied

# The other scripts in bin name this folder, so they go. Python keeps the library that it may need.
mv "$folder/bin/python3" "$folder/bin/.python"
rm -f "$folder"/bin/[!.]*
mv "$folder/bin/.python" "$folder/bin/python$version"
case $library in *.so*) cp -L "$library" "$folder/lib/" ;; esac
cat > "$folder/bin/python" << 'END'
#!/bin/sh
here=$(dirname "$0")
LD_LIBRARY_PATH=$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/python@" "$@"
END
sed -i "s/python@/python$version/" "$folder/bin/python"
chmod +x "$folder/bin/python"
ln -s python "$folder/bin/python3"
tar -C "$folder" -czf "$archive" .
